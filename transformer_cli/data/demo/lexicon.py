"""The words of the demo corpus, each English one with its one German equivalent.

The tables read like a school dictionary: "der Mann, Männer" gives gender and plural, a third part "-n" marks the weak
masculines (den Jungen), and a noun without a plural is used in the singular only. Regular forms are made by rule;
irregular ones stand in the tables. Which word goes with which is stated by classes of nouns ("text", "food", …).
"""

NOUN_TABLE = {
    "kin": """
        father: der Vater; mother: die Mutter; brother: der Bruder, Brüder; sister: die Schwester, Schwestern;
        son: der Sohn, Söhne; daughter: die Tochter, Töchter; uncle: der Onkel; aunt: die Tante;
        grandfather: der Großvater; grandmother: die Großmutter; friend: der Freund, Freunde;
        neighbour: der Nachbar, Nachbarn, -n; colleague: der Kollege, Kollegen, -n
    """,
    "people": """
        man/men: der Mann, Männer; woman/women: die Frau, Frauen; child/children: das Kind, Kinder;
        boy: der Junge, Jungen, -n; girl: das Mädchen, Mädchen; teacher: der Lehrer, Lehrer;
        pupil: der Schüler, Schüler; student: der Student, Studenten, -en; doctor: der Arzt, Ärzte;
        nurse: die Krankenschwester, Krankenschwestern; waiter: der Kellner, Kellner; baker: der Bäcker, Bäcker;
        policeman/policemen: der Polizist, Polizisten, -en; tourist: der Tourist, Touristen, -en;
        guest: der Gast, Gäste
    """,
    "animal": """
        dog: der Hund, Hunde; cat: die Katze, Katzen; horse: das Pferd, Pferde; bird: der Vogel, Vögel;
        cow: die Kuh, Kühe; mouse/mice: die Maus, Mäuse
    """,
    "food": """
        apple: der Apfel, Äpfel; egg: das Ei, Eier; banana: die Banane, Bananen; orange: die Orange, Orangen;
        potato/potatoes: die Kartoffel, Kartoffeln; tomato/tomatoes: die Tomate, Tomaten;
        carrot: die Karotte, Karotten; cake: der Kuchen, Kuchen
    """,
    "dish": """
        bread: das Brot; cheese: der Käse; soup: die Suppe; rice: der Reis; meat: das Fleisch; fish: der Fisch;
        salad: der Salat; chocolate: die Schokolade
    """,
    "drink": """
        water: das Wasser; milk: die Milch; coffee: der Kaffee; tea: der Tee; juice: der Saft; beer: das Bier;
        wine: der Wein
    """,
    "text": """
        book: das Buch, Bücher; letter: der Brief, Briefe; newspaper: die Zeitung, Zeitungen;
        story: die Geschichte, Geschichten; poem: das Gedicht, Gedichte; message: die Nachricht, Nachrichten;
        novel: der Roman, Romane
    """,
    "clothes": """
        shirt: das Hemd, Hemden; dress: das Kleid, Kleider; skirt: der Rock, Röcke; coat: der Mantel, Mäntel;
        jacket: die Jacke, Jacken; sweater: der Pullover, Pullover; hat: der Hut, Hüte;
        scarf/scarves: der Schal, Schals
    """,
    "vehicle": """
        car: das Auto, Autos; bicycle: das Fahrrad, Fahrräder; bus: der Bus, Busse; train: der Zug, Züge;
        ship: das Schiff, Schiffe; boat: das Boot, Boote
    """,
    "device": """
        lamp: die Lampe, Lampen; radio: das Radio, Radios; computer: der Computer, Computer;
        television: der Fernseher, Fernseher; telephone: das Telefon, Telefone; camera: die Kamera, Kameras;
        clock: die Uhr, Uhren
    """,
    "furniture": """
        table: der Tisch, Tische; chair: der Stuhl, Stühle; bed: das Bett, Betten; sofa: das Sofa, Sofas;
        cupboard: der Schrank, Schränke; shelf/shelves: das Regal, Regale
    """,
    "thing": """
        key: der Schlüssel, Schlüssel; bag: die Tasche, Taschen; bottle: die Flasche, Flaschen;
        glass: das Glas, Gläser; cup: die Tasse, Tassen; plate: der Teller, Teller;
        knife/knives: das Messer, Messer; pencil: der Bleistift, Bleistifte;
        umbrella: der Regenschirm, Regenschirme; suitcase: der Koffer, Koffer; box: die Kiste, Kisten;
        present: das Geschenk, Geschenke; flower: die Blume, Blumen; ball: der Ball, Bälle;
        picture: das Bild, Bilder; ticket: die Fahrkarte, Fahrkarten; map: die Landkarte, Landkarten;
        window: das Fenster, Fenster; door: die Tür, Türen
    """,
    "indoors": """
        kitchen: die Küche, Küchen; bathroom: das Badezimmer, Badezimmer; bedroom: das Schlafzimmer, Schlafzimmer;
        living room: das Wohnzimmer, Wohnzimmer; room: das Zimmer, Zimmer; office: das Büro, Büros
    """,
    "building": """
        house: das Haus, Häuser; school: die Schule, Schulen; church: die Kirche, Kirchen;
        museum: das Museum, Museen; hotel: das Hotel, Hotels; hospital: das Krankenhaus, Krankenhäuser;
        station: der Bahnhof, Bahnhöfe; shop: das Geschäft, Geschäfte; restaurant: das Restaurant, Restaurants;
        library: die Bibliothek, Bibliotheken; theatre: das Theater, Theater; cinema: das Kino, Kinos
    """,
    "outdoors": """
        garden: der Garten, Gärten; park: der Park, Parks; forest: der Wald, Wälder; city: die Stadt, Städte;
        village: das Dorf, Dörfer; street: die Straße, Straßen; beach: der Strand, Strände; lake: der See, Seen;
        river: der Fluss, Flüsse; market: der Markt, Märkte
    """,
    "idea": """
        question: die Frage, Fragen; answer: die Antwort, Antworten; word: das Wort, Wörter;
        sentence: der Satz, Sätze; exercise: die Übung, Übungen; problem: das Problem, Probleme;
        song: das Lied, Lieder; film: der Film, Filme
    """,
    "bare": """
        German: das Deutsch; English: das Englisch; French: das Französisch; football: der Fußball;
        tennis: das Tennis; chess: das Schach; money: das Geld; time: die Zeit
    """,
}

# English; German (with the stem before an ending, where it differs); place in a row of adjectives (opinion 0, size 1,
# age or state 2, colour 3); comparatives, where used; the nouns and classes that it goes with.
ADJECTIVE_TABLE = """
    good | gut | 0 | | friend teacher doctor pupil student waiter baker food dish drink book novel film story \
        question answer restaurant hotel camera
    bad | schlecht | 0 | | answer film novel coffee wine hotel restaurant picture
    beautiful | schön | 0 | more beautiful, schöner | clothes flower picture song poem story horse bird outdoors \
        house church
    ugly | hässlich | 0 | | clothes furniture lamp picture house
    expensive | teuer, teur | 0 | more expensive, teurer | clothes car bicycle boat furniture device restaurant \
        hotel wine bag present picture
    cheap | billig | 0 | cheaper, billiger | clothes bicycle furniture device restaurant hotel wine ticket
    interesting | interessant | 0 | more interesting, interessanter | text question film museum city
    boring | langweilig | 0 | | book novel story film museum exercise
    difficult | schwierig | 0 | more difficult, schwieriger | question exercise word sentence poem problem
    easy | einfach | 0 | | question exercise word sentence
    important | wichtig | 0 | | letter message question word book problem
    modern | modern | 0 | | building indoors furniture lamp
    famous | berühmt | 0 | | museum hotel restaurant church picture song film
    friendly | freundlich | 0 | | people neighbour colleague uncle aunt dog
    clever | klug | 0 | | child boy girl pupil student son daughter dog
    polite | höflich | 0 | | boy girl pupil student waiter policeman guest
    happy | glücklich | 0 | | child boy girl man woman
    sad | traurig | 0 | | child girl woman boy story song film
    strong | stark | 0 | stronger, stärker | man boy horse coffee tea
    lazy | faul | 0 | | pupil student cat son
    quiet | ruhig | 0 | | village street hotel room park
    rich | reich | 0 | | man woman uncle tourist neighbour
    poor | arm | 0 | | man woman student neighbour
    hungry | hungrig | 0 | | man child boy girl dog cat horse guest student
    thirsty | durstig | 0 | | man child boy girl guest dog horse
    tired | müde, müd | 0 | | people kin dog horse
    ill | krank | 0 | | man woman child boy girl pupil cow dog kin
    big | groß | 1 | bigger, größer | animal building indoors garden park city lake furniture bag box suitcase \
        present apple potato cake
    small | klein | 1 | smaller, kleiner | animal building indoors garden park village lake furniture bag box \
        suitcase present apple egg cake car
    little | klein | 1 | | brother sister son daughter child boy girl
    tall | groß | 1 | taller, größer | man woman boy girl policeman brother sister
    long | lang | 1 | longer, länger | letter story poem novel dress skirt scarf street river sentence word film
    short | kurz | 1 | shorter, kürzer | letter story poem message dress skirt sentence film
    heavy | schwer | 1 | heavier, schwerer | bag suitcase box furniture
    old | alt | 2 | older, älter | man woman teacher student doctor nurse waiter baker policeman tourist guest kin \
        animal text clothes vehicle device furniture thing building outdoors
    new | neu | 2 | | book novel newspaper clothes vehicle device furniture thing building teacher neighbour \
        colleague film song
    young | jung | 2 | younger, jünger | people dog cat horse aunt uncle neighbour colleague
    cold | kalt | 2 | | soup meat water milk coffee tea juice beer room
    hot | heiß | 2 | | soup water milk coffee tea
    warm | warm | 2 | warmer, wärmer | milk water bread soup coat jacket sweater scarf room
    fresh | frisch | 2 | | food bread fish meat milk juice salad water
    sweet | süß | 2 | | apple orange cake wine tea juice banana
    dirty | schmutzig | 2 | | clothes car bicycle cup glass plate knife window room dog
    clean | sauber | 2 | | shirt dress skirt cup glass plate knife window kitchen bathroom
    broken | kaputt | 2 | | device bicycle car chair cup glass window umbrella
    empty | leer | 2 | | bottle glass cup box plate suitcase bag cupboard
    dark | dunkel, dunkl | 2 | | forest street room bedroom church bathroom
    fast | schnell | 2 | faster, schneller | car train boat horse
    red | rot | 3 | | clothes car bicycle bus apple flower ball bag pencil umbrella lamp sofa
    blue | blau | 3 | | clothes car bicycle bus boat ball bag pencil umbrella door chair
    green | grün | 3 | | clothes car bicycle apple bottle bag pencil door sofa lamp
    yellow | gelb | 3 | | clothes car flower ball bird umbrella pencil apple
    black | schwarz | 3 | | clothes car bicycle dog cat horse coffee tea suitcase bag umbrella
    white | weiß | 3 | | clothes car boat ship dog cat horse house door cup plate cupboard wine
    brown | braun | 3 | | dog horse cow coat jacket hat bag suitcase table cupboard
"""

# English (base, past, participle, -ing where not by rule); German (infinitive, he-form where the vowel changes,
# perfect); uses; objects; places. The uses: g present progressive, s present simple, h habit, t past and perfect,
# p past only, f future, m with a modal verb, c with "can" only, i imperative, l "likes to"; o allows pronouns as
# objects, n no numbers with them, e none that are somebody's own.
VERB_TABLE = {
    "transitive": """
        read, read, read | lesen, liest, hat gelesen | ghtfmil | text | garden library park living_room
        write, wrote, written | schreiben, hat geschrieben | ghtfmil | letter message poem story novel book \
            sentence | library office
        buy, bought, bought | kaufen, hat gekauft | ghtfmie | food dish drink newspaper flower | market shop
        buy, bought, bought | kaufen, hat gekauft | gtfme | clothes device furniture car bicycle boat house horse \
            book novel bag cup glass present umbrella suitcase ball picture ticket map | shop city
        sell, sold, sold | verkaufen, hat verkauft | gtfm | car bicycle boat house horse cow furniture camera \
            computer radio clock picture | city
        eat, ate, eaten | essen, isst, hat gegessen | ghtfmil | food dish | kitchen restaurant garden
        drink, drank, drunk | trinken, hat getrunken | ghtfmil | drink | kitchen restaurant garden
        cook | kochen, hat gekocht | ghtfmil | soup rice meat fish potato egg carrot | kitchen
        order | bestellen, hat bestellt | ghtfmie | soup fish meat salad rice cake drink | restaurant
        cut, cut, cut | schneiden, hat geschnitten | ghtfmi | bread cheese meat cake tomato carrot potato | kitchen
        see, saw, seen | sehen, sieht, hat gesehen | shtfmo | people kin animal car train ship church house film \
            picture | city park station
        hear, heard, heard | hören, hat gehört | shtfmo | child neighbour teacher boy girl animal song train bus | \
            street garden
        know, knew, known | kennen, hat gekannt | son | people friend neighbour colleague uncle aunt brother sister \
            museum hotel restaurant city village story poem song film |
        understand, understood, understood | verstehen, hat verstanden | stcon | teacher doctor tourist child \
            question answer word sentence exercise problem text |
        love | lieben, hat geliebt | son | kin dog cat horse |
        like | mögen, hat gemocht | son | food dish drink animal teacher neighbour colleague doctor football chess \
            tennis text film song city museum dress coat picture |
        need | brauchen, hat gebraucht | s | key bag bottle glass cup plate knife pencil umbrella suitcase map \
            ticket computer telephone lamp table chair bed car bicycle coat jacket money time doctor |
        have, had, had | haben, hat gehabt | s | dog cat horse brother sister son daughter friend car bicycle boat \
            house garden computer camera key ticket map question problem present money time |
        visit | besuchen, hat besucht | ghtfmilo | kin teacher student museum church school hospital village city \
            theatre |
        call | an/rufen, hat angerufen | ghtfmio | kin doctor teacher nurse policeman |
        meet, met, met | treffen, trifft, hat getroffen | ghtfmo | kin teacher student doctor tourist | park city \
            restaurant station
        invite | ein/laden, lädt, hat eingeladen | gtfmio | kin teacher student tourist woman girl boy |
        pick up | ab/holen, hat abgeholt | ghtfmi | child son daughter brother sister grandmother grandfather \
            friend guest letter suitcase | station school
        ask | fragen, hat gefragt | gtfmio | teacher doctor policeman waiter nurse man woman boy girl kin |
        open | auf/machen, hat aufgemacht | ghtfmi | window door bottle box suitcase present bag |
        close | zu/machen, hat zugemacht | ghtfmi | window door box suitcase bag umbrella |
        turn on | an/machen, hat angemacht | ghtfmin | lamp radio computer television camera |
        turn off | aus/machen, hat ausgemacht | ghtfmin | lamp radio computer television camera |
        put on, put, put | an/ziehen, hat angezogen | ghtfmin | shirt dress skirt coat jacket sweater |
        wear, wore, worn | tragen, trägt, hat getragen | ghtfmln | clothes |
        carry | tragen, trägt, hat getragen | ghtfmi | bag suitcase box chair table bottle present |
        wash | waschen, wäscht, hat gewaschen | ghtfmi | shirt dress skirt jacket sweater car dog horse apple \
            tomato potato carrot | garden
        clean | putzen, hat geputzt | ghtfmi | window door kitchen bathroom bicycle lamp |
        tidy up | auf/räumen, hat aufgeräumt | ghtfmin | room kitchen bedroom living_room office cupboard shelf |
        repair | reparieren, hat repariert | ghtfmil | car bicycle bus boat clock computer radio camera television \
            telephone chair door | garden
        draw, drew, drawn | zeichnen, hat gezeichnet | ghtfmil | animal house flower church boat ship | garden school
        take, took, taken | nehmen, nimmt, hat genommen | ghtfmin | bus train umbrella bag key camera suitcase |
        bring along, brought, brought | mit/bringen, hat mitgebracht | gtfmi | cake salad wine juice bread flower \
            present ball camera friend |
        learn, learned, learned | lernen, hat gelernt | ghtfmil | German English French poem song word sentence | \
            school
        speak, spoke, spoken | sprechen, spricht, hat gesprochen | shml | German English French |
        play | spielen, hat gespielt | ghtfmil | football tennis chess | park garden school
        sing, sang, sung | singen, hat gesungen | ghtfmil | song | school church
        answer | beantworten, hat beantwortet | ghtfmi | question letter message |
        look for | suchen, hat gesucht | gtfmi | key bag umbrella ticket camera pencil hat scarf dog cat child map \
            | house garden park
        find, found, found | finden, hat gefunden | tfc | key bag umbrella ticket camera pencil hat scarf dog cat \
            answer map | house garden park
        lose, lost, lost | verlieren, hat verloren | t | key bag umbrella ticket camera hat scarf pencil ball | \
            city park street
        forget, forgot, forgotten, forgetting | vergessen, vergisst, hat vergessen | t | key bag umbrella ticket \
            camera word answer question |
        receive | bekommen, hat bekommen | tfe | letter message present answer picture |
        feed, fed, fed | füttern, hat gefüttert | ghtfmil | animal | garden
        build, built, built | bauen, hat gebaut | gtfme | house boat church hotel school ship hospital |
        rent | mieten, hat gemietet | gtfme | car bicycle boat room house |
    """,
    "dative": """
        help | helfen, hilft, hat geholfen | ghtfmio | people kin | kitchen garden
        thank | danken, hat gedankt | gtfmo | people kin |
        answer | antworten, hat geantwortet | gtfmio | people kin |
        follow | folgen, ist gefolgt | gtfmo | people animal car bus |
        listen to | zu/hören, hat zugehört | ghtfmio | people kin | school library
        congratulate | gratulieren, hat gratuliert | gtfmio | kin teacher student doctor pupil |
        believe | glauben, hat geglaubt | so | people kin |
        trust | vertrauen, hat vertraut | so | people kin |
    """,
    "ditransitive": """
        give, gave, given | geben, gibt, hat gegeben | gtfmi | food chocolate book letter newspaper ball key bag \
            bottle glass cup plate knife pencil umbrella present flower ticket map picture money |
        show, showed, shown | zeigen, hat gezeigt | gtfmi | picture letter book map ticket camera house garden room \
            car dress coat bicycle church city |
        bring, brought, brought | bringen, hat gebracht | ghtfmi | chocolate apple egg cake bread soup salad water \
            milk coffee tea juice letter newspaper book bottle glass cup plate knife key flower chair |
        lend, lent, lent | leihen, hat geliehen | gtfmi | book car bicycle computer camera coat jacket umbrella \
            suitcase pencil map money novel |
        send, sent, sent | schicken, hat geschickt | gtfmi | letter message picture book present ticket flower \
            money map |
        buy, bought, bought | kaufen, hat gekauft | gtfme | apple orange banana book novel shirt dress coat jacket \
            sweater hat scarf bicycle computer camera bag present flower ball ticket umbrella dog cat horse |
        write, wrote, written | schreiben, hat geschrieben | gtfmi | letter message poem story |
        read, read, read | vor/lesen, liest, hat vorgelesen | ghfmi | letter story poem message book novel |
        explain | erklären, hat erklärt | gtfmi | question answer word sentence exercise problem story poem |
    """,
    "intransitive": """
        work | arbeiten, hat gearbeitet | ghtfmil | | garden office hospital library restaurant school hotel
        sleep, slept, slept | schlafen, schläft, hat geschlafen | ghtfml | | garden bedroom living_room hotel
        swim, swam, swum | schwimmen, ist geschwommen | ghtfml | | lake river
        dance | tanzen, hat getanzt | ghtfml | | kitchen park street living_room
        play | spielen, hat gespielt | ghtfml | | garden park street forest beach
        sing, sang, sung | singen, hat gesungen | ghtfml | | church garden kitchen bathroom
        wait | warten, hat gewartet | ghtfmi | | station restaurant office hotel
        cook | kochen, hat gekocht | ghtfml | | kitchen garden
        sit, sat, sat | sitzen, hat gesessen | ghtl | | garden kitchen park living_room library
        laugh | lachen, hat gelacht | ght | |
        cry | weinen, hat geweint | ght | |
        smoke | rauchen, hat geraucht | ghtm | | garden street kitchen
        get up, got, got | auf/stehen, ist aufgestanden | hfm | |
        go shopping, went, gone | ein/kaufen, hat eingekauft | ghtfml | | city market
        watch television | fern/sehen, sieht, hat ferngesehen | ghtfml | | living_room kitchen bedroom
        come back, came, come | zurück/kommen, ist zurückgekommen | tfm | |
        fall asleep, fell, fallen | ein/schlafen, schläft, ist eingeschlafen | ht | | garden living_room
    """,
    "motion": """
        go, went, gone | gehen, ist gegangen | ghtfmil | | park cinema theatre school market church library kitchen \
            garden restaurant museum doctor grandmother friend neighbour
        drive, drove, driven | fahren, fährt, ist gefahren | ghtfmi | | station beach lake city hospital hotel \
            office village Cities
        run, ran, run | laufen, läuft, ist gelaufen | ghtfm | | station school river park house
        come, came, come | kommen, ist gekommen | ghtfmi | | school office market library station village
        travel, travelled, travelled, travelling | reisen, ist gereist | ghtfml | | Cities
        fly, flew, flown | fliegen, ist geflogen | ghtfm | | Cities
    """,
    "position": """
        lie, lay, lain | liegen, hat gelegen | gp | book letter newspaper key pencil map picture knife ticket | \
            on(table chair bed sofa shelf) under(table chair bed sofa) in(bag box suitcase cupboard) next_to(lamp \
            bed bag)
        stand, stood, stood | stehen, hat gestanden | gp | bottle glass cup plate lamp | on(table shelf cupboard) \
            next_to(computer bed window bag)
        stand, stood, stood | stehen, hat gestanden | gp | chair table bed suitcase box | next_to(door window \
            cupboard) in_front_of(window door) behind(door sofa)
        stand, stood, stood | stehen, hat gestanden | gp | bicycle car bus | in_front_of(house church school hotel) \
            behind(house church school hospital) next_to(church shop)
        hang, hung, hung | hängen, hat gehangen | gp | picture clock map lamp | above(table bed sofa door) \
            next_to(window door shelf)
    """,
    "placing": """
        lay, laid, laid | legen, hat gelegt | gtfmi | book letter newspaper key pencil map picture knife ticket | \
            on(table chair bed sofa shelf) under(table chair bed sofa) in(bag box suitcase cupboard) next_to(lamp \
            bed bag)
        put, put, put | stellen, hat gestellt | gtfmi | bottle glass cup plate lamp | on(table shelf cupboard) \
            next_to(computer bed window bag)
        put, put, put | stellen, hat gestellt | gtfmi | chair table bed suitcase box | next_to(door window \
            cupboard) in_front_of(window door) behind(door sofa)
        hang, hung, hung | hängen, hat gehängt | gtfm | picture clock map lamp | above(table bed sofa door) \
            next_to(window door shelf)
    """,
    "belonging": """
        belong to | gehören, hat gehört | s | car bicycle house dog cat horse book bag key umbrella camera computer \
            coat hat boat garden hotel restaurant |
    """,
    "living": """
        live | wohnen, hat gewohnt | s | | city village hotel house Cities
        stay | bleiben, ist geblieben | ghtfm | | hotel hospital garden office Cities
    """,
    "saying": """
        know, knew, known | wissen, hat gewusst | sn | |
        think, thought, thought | denken, hat gedacht | s | |
        believe | glauben, hat geglaubt | s | |
        hope | hoffen, hat gehofft | s | |
        say, said, said | sagen, hat gesagt | st | |
        ask | fragen, hat gefragt | gt | |
    """,
    "copula": """
        be, was, been | sein, ist gewesen | | |
    """,
    "thing": """
        cost, cost, cost | kosten, hat gekostet | s | |
        arrive | an/kommen, ist angekommen | fht | |
        leave, left, left | ab/fahren, fährt, ist abgefahren | fht | |
        begin, began, begun, beginning | an/fangen, fängt, hat angefangen | fht | |
        rain | regnen, hat geregnet | gt | |
        snow | schneien, hat geschneit | gt | |
    """,
}

# German preposition of the place and of the direction. English has "in", save as AT_PLACE says, and "to".
PLACE_TABLE = {
    "in in": "kitchen garden living_room bedroom bathroom room office hospital church library theatre cinema museum"
    " restaurant shop park forest city village bed",
    "in zu": "house hotel school river",
    "in an": "lake",
    "auf zu": "street market",
    "an zu": "station",
    "an an": "beach",
    "bei zu": "doctor grandmother friend neighbour",
}
AT_PLACE = {"school": "at", "station": "at", "market": "at", "beach": "on"}
# With the dative for a place, with the accusative for a direction.
TWO_WAY = {
    "on": "auf", "under": "unter", "in": "in", "next to": "neben", "behind": "hinter", "in front of": "vor",
    "above": "über",
}  # fmt: skip
CITIES = {
    "Berlin": "Berlin", "Hamburg": "Hamburg", "Munich": "München", "Vienna": "Wien", "Cologne": "Köln",
    "Paris": "Paris", "London": "London",
}  # fmt: skip
# The possessive of each name's own things.
NAMES = {
    "Anna": "her", "Maria": "her", "Julia": "her", "Lena": "her", "Peter": "his", "Thomas": "his", "Paul": "his",
    "Max": "his",
}  # fmt: skip

MOMENTS = {"now": "jetzt", "today": "heute"}
HABITS = {
    "every day": "jeden Tag", "every morning": "jeden Morgen", "every evening": "jeden Abend",
    "in the evening": "am Abend", "in summer": "im Sommer", "in winter": "im Winter", "on Sundays": "sonntags",
}  # fmt: skip
FREQUENCIES = {"often": "oft", "always": "immer", "sometimes": "manchmal", "never": "nie"}
PAST_TIMES = {
    "yesterday": "gestern", "last week": "letzte Woche", "last year": "letztes Jahr", "this morning": "heute Morgen",
    "on Monday": "am Montag", "on Friday": "am Freitag", "two days ago": "vor zwei Tagen",
}  # fmt: skip
FUTURE_TIMES = {
    "tomorrow": "morgen", "next week": "nächste Woche", "this evening": "heute Abend", "on Saturday": "am Samstag",
    "on Monday": "am Montag", "today": "heute",
}  # fmt: skip
NUMBERS = {
    "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs", "seven": "sieben", "eight": "acht",
    "nine": "neun", "ten": "zehn", "twelve": "zwölf", "10": "10", "12": "12", "15": "15", "20": "20", "25": "25",
    "30": "30", "40": "40", "50": "50", "60": "60", "80": "80", "100": "100",
}  # fmt: skip
